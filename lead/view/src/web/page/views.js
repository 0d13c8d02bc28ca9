// The views. Each has `make(element, argument, state)`, which returns `query()` and `draw()`.

import { cost } from './cost.js';
import { age, h, keep, markdown, open } from './element.js';
import { sequence } from './sequence.js';
import { get, post } from './server.js';
import { timeline } from './timeline.js';

const CLASS = { 'NEEDS YOU': 'need', STUCK: 'bad', WORKING: 'work', IDLE: 'idle', ENDED: 'ended' };
const GLYPH = { 'NEEDS YOU': '●', STUCK: '▲', WORKING: '◐', IDLE: '○', ENDED: '·' };
/** A text of more lines is shown clipped in the overview, and can be answered only where all of it is. */
const CLIP = 7;
/** How long a card must have stood still before it can be answered. */
const SETTLES = 300;

/** When cards last moved: a click just then may be meant for another one. */
let moved = 0;

/** Calls back once the end of an element has been on the screen. */
function whenRead(element, then) {
  const end = h('span');
  element.append(end);
  const observer = new IntersectionObserver((seen) => {
    if (!seen.some((entry) => entry.isIntersecting)) return;
    observer.disconnect();
    then();
  });
  observer.observe(end);
}

function verdicts(request, body, said) {
  const feedback = h('input', { 'aria-label': `Feedback for ${request.member}`, placeholder: 'feedback (needed to reject)' });
  const answer = (approve) => async () => {
    if (performance.now() - moved < SETTLES) {
      said.textContent = 'nothing was answered: this card has just moved, look again';
    } else if (!approve && !feedback.value.trim()) {
      feedback.focus();
      said.textContent = 'say why, so that it can do better';
    } else {
      yes.disabled = no.disabled = true;
      const [isDone, text] = await post('answer', { id: request.id, approve, feedback: feedback.value, code: request.code });
      said.textContent = text;
      yes.disabled = no.disabled = isDone;
    }
  };
  const yes = h('button.yes', { disabled: true, title: 'enabled once the end of the text was on the screen', onclick: answer(true) }, 'Approve');
  const no = h('button.no', { onclick: answer(false) }, 'Reject');
  whenRead(body, () => { yes.disabled = !request.whole; });
  const code = request.code && h('span.dim', {}, `code ${request.code}`);
  return [feedback, yes, no, code];
}

function card(request, isWhole, state) {
  const body = markdown(request.text);
  const said = h('span.dim', { role: 'status' });
  const isClipped = !isWhole && (request.lines > CLIP || request.text.length > 100 * CLIP);
  if (isClipped) body.classList.add('clip');
  const acts = () => {
    if (!request.judged) return [h('span.dim', {}, `Only ${request.member} answers this.`)];
    if (state.read_only) return [];
    if (isClipped) return [h('a', { href: '#/requests' }, `Read all ${request.lines} lines, and answer`)];
    return verdicts(request, body, said);
  };
  const tooLong = !request.whole && h('p.bad', {}, `The text is too long for a page: \`teamctl plans ${request.id}\` shows all of it.`);
  return h('article.card', { 'aria-label': `${request.kind} of ${request.member}` },
    h('div.top', {}, h('strong', {}, request.member), h('span.need', {}, request.kind), h('span.dim', {}, age(request.since), ' ago'), h('code.dim.right', {}, request.id)),
    body, tooLong, h('div.acts', {}, acts(), said));
}

function drawRequests(list, state, isWhole) {
  const before = [...list.children].map((child) => child.dataset.key).join();
  keep(list, state.requests.shown, (request) => request.id, (request) => card(request, isWhole, state));
  if (before && before !== [...list.children].map((child) => child.dataset.key).join()) moved = performance.now();
}

function member(one, group) {
  const style = CLASS[group];
  const isOpen = group !== 'IDLE' && group !== 'ENDED';
  return h('li', {}, h(`span.${style}`, { 'aria-hidden': 'true' }, GLYPH[group]), h('a', { href: `#/conversation/${one.name}` }, one.name),
    h(`span.${style}`, {}, one.word, ' ', isOpen && age(one.since)), h(`span.what${isOpen ? '' : '.dim'}`, { title: one.what }, one.what),
    h('span.dim', {}, one.cost ?? one.tokens ?? ''));
}

const overview = {
  title: 'Overview',
  make(element, _, state) {
    const [cards, more, groups, feed] = [h('div'), h('p.dim'), h('div'), h('ul.rows.feed')];
    const asks = h('div', {}, h('h2', {}, 'Requests'), cards, more);
    const split = h('div.split', {}, asks, h('div', {}, groups, h('h2', {}, 'Last events'), feed));
    element.append(split);
    const draw = () => {
      const { count, shown } = state.requests;
      asks.hidden = count === 0;
      split.classList.toggle('one', count === 0);
      drawRequests(cards, state, false);
      more.textContent = count > shown.length ? `and ${count - shown.length} more` : '';
      keep(groups, state.groups.filter((group) => group.count), (group) => group.title, ({ title, count, members }) => h('section', {},
        h('h2', {}, `${title} · ${count}`), h('ul.rows.members', {}, members.map((one) => member(one, title))),
        count > members.length && h('p.dim', {}, `and ${count - members.length} more`)));
      if (!state.groups.some((group) => group.count)) groups.replaceChildren(h('p.empty', {}, 'There are no teammates. `teamctl spawn NAME` starts one.'));
      keep(feed, state.feed, (step) => [step.at, step.from, step.to, step.what], (step) => h('li', {}, h('span.dim', {}, age(step.at)),
        h('span', {}, step.to ? `${step.from} → ${step.to}` : step.from),
        h('span', { class: step.bad ? 'bad' : null, title: step.text }, [step.what, step.text].filter(Boolean).join(': '))));
    };
    return { query: () => 'view=overview', draw };
  },
};

const requests = {
  title: 'Requests',
  make(element, _, state) {
    const [list, more] = [h('div'), h('p.empty')];
    element.append(h('h2', {}, 'Requests that wait, the oldest first'), list, more);
    const draw = () => {
      const { count, shown } = state.requests;
      drawRequests(list, state, true);
      if (count === 0) more.textContent = 'No request is pending. A teammate’s plan waits here for your answer.';
      else more.textContent = count > shown.length ? `${count - shown.length} more follow when these are answered.` : '';
    };
    return { query: () => 'view=requests', draw };
  },
};

const board = {
  title: 'Board',
  make(element, _, state) {
    const [columns, empty] = [h('div.board'), h('p.empty', {}, 'There are no tasks. `teamctl task add SUBJECT` makes one.')];
    const reading = h('p.dim', { role: 'status' });
    element.append(columns, empty, reading);
    const show = async (task) => {
      const { text } = await get(`view=task&id=${task.id}`);
      // A view that was left meanwhile opens nothing over the next one.
      if (columns.isConnected) open(`task ${task.id}`, text);
    };
    const line = (task) => h(`li${task.blocked ? '.blocked' : ''}`, {},
      h('button', { onclick: () => show(task), title: task.subject }, `${task.id} ${task.subject}`), h(`span.${CLASS[task.group]}`, { title: task.how }, task.how));
    const draw = () => {
      reading.textContent = state.reading ? `still reading ${state.reading} files` : '';
      columns.hidden = !(empty.hidden = state.columns.some((column) => column.count));
      keep(columns, state.columns, (column) => column.title, ({ title, count, tasks }) => h(`section${count ? '' : '.vacant'}`, {},
      h('h2', {}, `${title} · ${count}`), h('ul.tasks', {}, tasks.map(line)), count > tasks.length && h('p.dim', {}, `and ${count - tasks.length} more`)));
    };
    return { query: () => 'view=board', draw };
  },
};

function part(one) {
  const text = { said: () => [h('span.dim', {}, one.from), markdown(one.text)], answer: () => markdown(one.text) };
  if (one.kind === 'result') return h('details', {}, h(`summary${one.bad ? '.bad' : ''}`, {}, one.line), h('pre', { tabindex: 0 }, one.text));
  return h(`div.turn.${one.kind === 'failure' ? 'bad' : one.kind}`, {}, text[one.kind]?.() ?? one.text);
}

function sendBox(name) {
  const [text, said] = [h('input', { 'aria-label': `Message to ${name}`, placeholder: `Message to ${name}` }), h('span.dim', { role: 'status' })];
  const send = async (event) => {
    event.preventDefault();
    if (!text.value.trim()) return;
    const [isDone, what] = await post('send', { to: name, text: text.value });
    said.textContent = what;
    if (isDone) text.value = '';
  };
  return h('form', { onsubmit: send }, h('div.acts', {}, text, h('button.yes', {}, 'Send'), said));
}

const conversation = {
  title: 'Conversation',
  make(element, argument, state) {
    const name = /^[a-z0-9_-]+$/.test(argument ?? '') ? argument : 'lead';
    const choice = h('select', { onchange: () => { location.hash = `#/conversation/${choice.value}`; } });
    const [parts, now, form] = [h('div'), h('div'), h('div')];
    let [all, before] = [new Map(), null];
    const page = document.documentElement;
    const paint = () => {
      keep(parts, [...all.values()], (one) => one.at, part);
      earlier.hidden = before === null;
    };
    const showEarlier = async () => {
      const [asked, below] = [before, page.scrollHeight - page.scrollTop];
      const found = await get(`view=earlier&name=${name}&before=${asked}`);
      // Meanwhile there may be another conversation.
      if (!found.parts || before !== asked) return;
      all = new Map([...found.parts.map((one) => [one.at, one]), ...all]);
      before = found.before;
      paint();
      page.scrollTop = page.scrollHeight - below;
    };
    const earlier = h('button', { hidden: true, onclick: showEarlier }, 'Show what was said earlier');
    element.append(h('div.bar', {}, h('label', {}, 'Conversation of ', choice)), earlier, parts, now, form);
    let names = '';
    const draw = () => {
      if (names !== String(state.names)) {
        names = String(state.names);
        choice.replaceChildren(...new Set(['lead', name, ...state.names]).values().map((one) => h('option', { value: one, selected: one === name }, one)));
      }
      if (!form.firstChild && !state.read_only) form.append(sendBox(name));
      const isAtEnd = page.scrollTop + page.clientHeight > page.scrollHeight - 40;
      // What does not go on with what is shown is shown instead.
      if (!all.has(state.parts[0]?.at)) [all, before] = [new Map(), state.before];
      for (const one of state.parts) all.set(one.at, one);
      paint();
      if (!all.size) parts.replaceChildren(h('p.empty', {}, `Nothing was said by or to ${name} yet.`));
      now.replaceChildren(state.live ? h('div.turn.live', {}, markdown(state.live)) : '');
      if (isAtEnd) page.scrollTop = page.scrollHeight;
    };
    return { query: () => `view=conversation&name=${name}`, draw };
  },
};

export const views = { overview, requests, board, conversation, sequence, timeline, cost };
