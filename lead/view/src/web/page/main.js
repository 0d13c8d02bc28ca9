// The frame of the page: the stream of the view that is shown, and what stands above each view.

import { tell } from './dialog.js';
import { h } from './element.js';
import { stream } from './first.js';
import { help, take } from './keys.js';
import { addTask, spawn } from './orders.js';
import { empty, order } from './parts.js';
import { loadAll, views } from './views.js';

const LONGEST_PAUSE = 15000;
const $ = (selector) => document.querySelector(selector);

function live(text, isTrouble) {
  $('#live').textContent = text;
  $('#live').className = isTrouble ? 'bad' : 'dim';
}

/** Reads a stream to its end, and gives each event away. */
async function read(answer, event) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (text + value).split('\n\n');
    text = events.pop();
    for (const one of events) if (one.startsWith('data: ')) event(JSON.parse(one.slice(6)));
  }
}

/** Follows a view until it is left. A stream that begins anew has everything. */
async function follow(query, event, signal) {
  for (let pause = 500; !signal.aborted; pause = Math.min(2 * pause, LONGEST_PAUSE)) {
    try {
      const answer = await stream(query, signal);
      if (answer.ok) {
        await read(answer, (data) => {
          pause = 500;
          // A mistake of the page is none of the connection.
          try { event(data); } catch (error) { reportError(error); }
        });
        live('connection lost, trying again…', true);
      } else {
        const { error } = await answer.json();
        live(error, true);
        if (answer.status === 401) $('#main').replaceChildren(empty(`This page has no key: ${error}`));
        if (answer.status === 404) missing(error);
        if (answer.status === 401 || answer.status === 404) return;
      }
    } catch {
      if (!signal.aborted) live('teamctl web does not answer, trying again…', true);
    }
    await new Promise((done) => setTimeout(done, pause));
  }
}

/** Says that what the address names is not there (any more). */
function missing(error) {
  const [, view, argument] = location.hash.split('/');
  $('#main').replaceChildren(empty(`${view} ${decodeURIComponent(argument ?? '')}: ${error}`, 'It may have been forgotten, or the address is of another team.', h('a', { href: '#/overview' }, 'Overview')));
}

const PILLS = [['need', '●', 'need you'], ['bad', '▲', 'stuck'], ['work', '◐', 'working'], ['', '○', 'idle']];

function head(state) {
  const counts = state.groups.map((group) => group.count);
  $('#team').textContent = state.team;
  document.title = (counts[0] ? `(${counts[0]}) ` : '') + state.team;
  const pills = PILLS.map(([name, glyph, text], at) => [name, `${glyph} ${counts[at]} ${text}`, counts[at]]);
  const failed = state.failed === 1 ? '▲ 1 task failed' : `▲ ${state.failed} tasks failed`;
  const all = [...pills, ['bad', failed, state.failed], ['', state.progress, state.progress], ['', [state.tokens, state.cost].filter(Boolean).join(' · '), state.tokens]].filter(([, , shown]) => shown);
  $('#counts').replaceChildren(...all.map(([name, text]) => (name === 'need' ? h('a.pill.need', { href: '#/requests' }, text) : h(`span.pill${name && `.${name}`}`, {}, text))));
  for (const button of document.querySelectorAll('#orders .acting')) button.hidden = state.read_only;
  $('#waiting')?.replaceChildren(state.waiting ? String(state.waiting) : '');
  if (state.trouble) live(state.trouble, true);
  else live(state.daemon ? 'live' : 'no daemon runs', !state.daemon);
}

/** Says that a view cannot be shown: its module did not come. */
function failed(error) {
  reportError(error);
  live('teamctl web does not answer: load the page again', true);
}

let left = new AbortController();
let state = {};
/** How far each view was scrolled when it was left. */
const scrolled = new Map();
let place = '';

async function show() {
  left.abort();
  left = new AbortController();
  scrolled.set(place, document.documentElement.scrollTop);
  place = location.hash;
  const [, name = '', argument] = location.hash.split('/');
  const shown = Object.hasOwn(views, name) ? name : 'overview';
  for (const link of document.querySelectorAll('nav a')) {
    link.removeAttribute('aria-current');
    if (link.hash !== `#/${views[shown].under ?? shown}`) continue;
    link.setAttribute('aria-current', 'page');
    link.scrollIntoView({ block: 'nearest', inline: 'center' });
  }
  state = {};
  const main = h('div');
  $('#main').replaceChildren(main);
  // Of one thing nothing is shown before it is known.
  main.hidden = Boolean(views[shown].under);
  const ours = state;
  const here = left.signal;
  const view = await views[shown].make(main, argument && decodeURIComponent(argument), ours);
  if (here.aborted) return;
  let isFirst = true;
  const event = (data) => {
    Object.assign(ours, data);
    head(ours);
    if (!main.isConnected) $('#main').replaceChildren(main);
    main.hidden = false;
    view.draw();
    if (isFirst && shown !== 'conversation' && scrolled.size > 1) document.documentElement.scrollTop = scrolled.get(location.hash) ?? 0;
    if (isFirst) (globalThis.requestIdleCallback ?? setTimeout)(loadAll);
    isFirst = false;
    document.body.dataset.shown = shown;
  };
  let asked = new AbortController();
  const begin = () => {
    asked.abort();
    asked = new AbortController();
    follow(view.query(), event, AbortSignal.any([here, asked.signal]));
  };
  view.begin = begin;
  begin();
}

const places = Object.keys(views).filter((name) => !views[name].under);
$('nav').append(...places.map((name) =>
  h('a', { href: `#/${name}` }, views[name].title, name === 'requests' && h('b', { id: 'waiting', 'aria-label': 'pending' }))));
const [newTask, newMember] = [() => addTask(state), () => spawn(state)];
const acting = (then) => () => (state.read_only ? tell(false, 'this page only shows the team (--read-only)') : then());
$('#orders').append(order('New task', newTask, '.acting'), order('Spawn', newMember, '.acting'), h('button', { type: 'button', 'aria-label': 'Keys', title: 'Keys (?)', onclick: help }, '?'));
take({ n: acting(newTask), s: acting(newMember) }, places);
addEventListener('hashchange', () => { if (location.hash.startsWith('#/') && location.hash !== place) show().catch(failed); });
show().catch(failed);
