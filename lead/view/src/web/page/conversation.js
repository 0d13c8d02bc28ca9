// A conversation: pieces of work that fold, and in them what was said and one block for each call.

import { drawCards } from './cards.js';
import { between, lines } from './diff.js';
import { clock, h, keep, markdown, minute } from './element.js';
import { image } from './image.js';
import { empty, order } from './parts.js';
import { sendBox } from './send.js';
import { get } from './server.js';

/** How many lines of a result are shown at its beginning and at its end. */
const [FIRST, LAST] = [4, 4];

/** Puts each result to its call, and parts to the piece of work that begins with what the agent was sent. */
export function piecesOf(all) {
  const [pieces, calls] = [[], new Map()];
  let before = null;
  for (const one of all) {
    const call = one.kind === 'result' && calls.get(one.call);
    if (call && !call.result) {
      call.result = one;
      continue;
    }
    const begins = !pieces.length || (one.kind === 'said' && before !== 'said');
    // What the process says of itself stands at the head of the first piece of work.
    if (begins && pieces.at(-1)?.items.every((item) => item.kind === 'aside')) pieces.at(-1).first = one;
    else if (begins) pieces.push({ key: one.at, first: one, items: [] });
    const item = { ...one };
    if (one.kind === 'call') calls.set(one.call, item);
    pieces.at(-1).items.push(item);
    before = one.kind;
  }
  return pieces;
}

const time = (at) => h('time.dim', { title: new Date(at * 1000).toLocaleString() }, minute(at));

/** Shows the first and the last lines of an output, and all of it on demand. */
function output({ text: whole, bad, images: shown = [] }) {
  // The caption of an image says the same.
  const text = whole.split('\n').filter((line) => !shown.some((one) => line === `[${one.text}]`)).join('\n');
  const all = text.replace(/\n$/, '').split('\n');
  const style = bad ? '.bad' : '';
  if (!text.trim() || text === '(no output)') return '';
  if (all.length <= FIRST + LAST + 1) return h(`pre.out${style}`, { tabindex: 0 }, all.join('\n'));
  const rest = all.length - FIRST - LAST;
  const box = h('div', {}, h(`pre.out${style}`, { tabindex: 0 }, all.slice(0, FIRST).join('\n')),
    h('button.more', { type: 'button', onclick: () => box.replaceChildren(h(`pre.out${style}`, { tabindex: 0 }, text)) }, `${rest} more lines`),
    h(`pre.out${style}`, { tabindex: 0 }, all.slice(-LAST).join('\n')));
  return box;
}

/** The images of a result, below its text. */
const images = (name, { at, images: all = [] }) => all.map((one, number) => image(`image?name=${name}&at=${at}&number=${number}`, one));

/** The line of a call: the first of its command, or what the call says of itself. */
function headOf({ tool, input, text }) {
  if (input?.command) return input.command.split('\n')[0];
  if (input?.path) return input.path;
  return text.replace(/^▸ /, '').replace(tool, '').trim();
}

function call(name, one) {
  const { tool, input, result } = one;
  const more = input?.command?.includes('\n') && h('pre', { tabindex: 0 }, input.command);
  const change = input?.after !== undefined && lines(between(input.before ?? '', input.after));
  const how = result?.line.replace(/^\s*↳?\s*/, '').split(' · ')[0];
  const state = result ? h(`span.${result.bad ? 'bad' : 'work'}`, {}, result.bad ? `✕ ${how}` : '✓') : h('span.dim', {}, '…');
  return h('div.turn.call', {}, h('div.top', {}, h('span.tool', {}, tool), h('code.command', {}, headOf(one)), h('span.right', {}, state, ' ', time(one.time))),
    more, change, result && !(change && !result.bad) && output(result), result && images(name, result));
}

function block(name, one) {
  if (one.kind === 'call') return call(name, one);
  if (one.kind === 'result') return h('div.turn.call', {}, h('div.top', {}, h(`span.${one.bad ? 'bad' : 'dim'}`, {}, one.line), h('span.right', {}, time(one.time))), output(one), images(name, one));
  if (one.kind === 'said') return h('div.turn.said', {}, h('div.top', {}, h('strong', {}, one.from), h('span.right', {}, time(one.time))), markdown(one.text));
  if (one.kind === 'answer') return h('div.turn.answer', {}, h('span.right', {}, time(one.time)), markdown(one.text));
  return h(`div.turn.${one.kind === 'failure' ? 'bad' : 'aside'}`, {}, one.text, ' ', time(one.time));
}

/** Says a piece of work in a line. */
function summary({ first, items }) {
  const calls = items.filter((item) => item.kind === 'call').length;
  const text = first.text.split('\n').find((line) => line.trim()) ?? '';
  return [h('span.dim', {}, clock(first.time)), ' ', first.from && h('strong', {}, first.from), ' ', h('span.text', {}, text),
    calls > 0 && h('span.dim.right', {}, calls === 1 ? '1 call' : `${calls} calls`)];
}

function drawPieces(box, pieces, name) {
  keep(box, pieces.map(({ key }) => ({ key })), (piece) => piece.key, () => h('details.piece', { open: true }, h('summary'), h('div')));
  pieces.forEach((piece, at) => {
    const [title, body] = box.children[at].children;
    const shown = JSON.stringify([piece.items.length, piece.first.text]);
    if (title.shown !== shown) title.replaceChildren(...summary(piece).filter(Boolean));
    title.shown = shown;
    keep(body, piece.items, (item) => item.at, (item) => block(name, item));
  });
}

/** Finds a text in what is shown: hides the rest, and marks each place where the browser can. */
function search(box, text, count) {
  const wanted = text.trim().toLowerCase();
  const ranges = [];
  let found = 0;
  for (const piece of box.querySelectorAll('.piece')) {
    let isIn = false;
    for (const turn of piece.querySelectorAll('.turn')) {
      const fits = !wanted || turn.textContent.toLowerCase().includes(wanted);
      turn.hidden = !fits;
      isIn ||= fits;
      found += wanted && fits ? 1 : 0;
      if (!wanted || !fits) continue;
      for (const walker = document.createTreeWalker(turn, NodeFilter.SHOW_TEXT); walker.nextNode();) {
        const at = walker.currentNode.data.toLowerCase().indexOf(wanted);
        if (at < 0) continue;
        const range = new Range();
        range.setStart(walker.currentNode, at);
        range.setEnd(walker.currentNode, Math.min(at + wanted.length, walker.currentNode.length));
        ranges.push(range);
      }
    }
    piece.hidden = !isIn;
    if (wanted && isIn) piece.open = true;
  }
  if (globalThis.Highlight) CSS.highlights.set('found', new Highlight(...ranges));
  count.textContent = wanted ? `${found} found` : '';
  return found;
}

/** How many pages of what was said earlier are searched at a time. */
const PAGES = 20;

export const conversation = {
  make(element, argument, state) {
    const name = /^[a-z0-9_-]+$/.test(argument ?? '') ? argument : 'lead';
    const choice = h('select', { onchange: () => { location.hash = `#/conversation/${choice.value}`; } });
    const [parts, none, now, asks, form] = [h('div'), h('div'), h('div'), h('div.talk'), h('div.talk')];
    const [find, count] = [h('input', { type: 'search', 'aria-label': 'Search this conversation', placeholder: 'Search  /' }), h('span.dim', { role: 'status' })];
    let [all, before] = [new Map(), null];
    const page = document.documentElement;
    const paint = () => {
      drawPieces(parts, piecesOf([...all.values()]), name);
      earlier.hidden = before === null;
      return look();
    };
    /** Searches what is loaded; what was said earlier is searched when that is wanted. */
    const look = () => {
      const found = search(parts, find.value, count);
      further.hidden = !find.value.trim() || before === null;
      return found;
    };
    find.addEventListener('input', look);
    const showEarlier = async () => {
      const [asked, below] = [before, page.scrollHeight - page.scrollTop];
      const found = await get(`view=earlier&name=${name}&before=${asked}`);
      // Meanwhile there may be another conversation.
      if (!found.parts || before !== asked) return undefined;
      all = new Map([...found.parts.map((one) => [one.at, one]), ...all]);
      before = found.before;
      const count = paint();
      page.scrollTop = page.scrollHeight - below;
      return count;
    };
    const searchEarlier = async () => {
      const loaded = look();
      further.disabled = true;
      for (let pages = 0; pages < PAGES && before !== null && element.isConnected; pages += 1) {
        const count = await showEarlier();
        if (count === undefined || count > loaded) break;
      }
      further.disabled = false;
    };
    const fold = (isOpen) => parts.querySelectorAll('.piece').forEach((piece) => { piece.open = isOpen; });
    const folds = order('Fold', () => {
      const isOpen = folds.textContent === 'Unfold';
      fold(isOpen);
      folds.textContent = isOpen ? 'Fold' : 'Unfold';
    });
    const earlier = h('button', { hidden: true, onclick: showEarlier }, 'Show what was said earlier');
    const further = order('Search what was said earlier', searchEarlier);
    further.hidden = true;
    const needs = order('Jump to what needs you', () => asks.scrollIntoView({ block: 'end' }), '.need');
    const link = name !== 'lead' && h('a', { href: `#/teammate/${name}` }, 'About it');
    element.append(h('div.bar', {}, h('label', {}, 'Conversation of ', choice), link || '', find, count, further, folds, needs), earlier, none, parts, now, asks, form);
    let names = '';
    const draw = () => {
      if (names !== String(state.names)) {
        names = String(state.names);
        choice.replaceChildren(...[...new Set(['lead', name, ...state.names])].map((one) => h('option', { value: one, selected: one === name }, one)));
      }
      if (!form.firstChild && !state.read_only) form.append(sendBox(name));
      const isAtEnd = page.scrollTop + page.clientHeight > page.scrollHeight - 40;
      // What does not go on with what is shown is shown instead.
      if (!all.has(state.parts[0]?.at)) [all, before] = [new Map(), state.before];
      for (const one of state.parts) all.set(one.at, one);
      paint();
      none.replaceChildren(all.size ? '' : empty(`Nothing was said by or to ${name} yet.`, state.read_only ? '' : 'A message below begins its work.'));
      now.replaceChildren(state.live ? h('div.turn.live', {}, markdown(state.live)) : '');
      needs.hidden = !state.requests.length;
      // A review with its work would part the box below from what was said.
      drawCards(asks, state.requests, null, state);
      if (isAtEnd) page.scrollTop = page.scrollHeight;
    };
    return { query: () => `view=conversation&name=${name}`, draw };
  },
};
