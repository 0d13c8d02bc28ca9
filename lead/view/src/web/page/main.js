// The frame of the page: the stream of the view that is shown, and what stands above each view.

import { h } from './element.js';
import { ask } from './server.js';
import { views } from './views.js';

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
      const answer = await ask(`events?${query}`, { signal });
      if (answer.ok) {
        await read(answer, (data) => { pause = 500; event(data); });
        live('connection lost, trying again…', true);
      } else {
        const { error } = await answer.json();
        live(error, true);
        if (answer.status === 401) $('#main').replaceChildren(h('p.empty', {}, `This page has no key: ${error}`));
        if (answer.status === 401 || answer.status === 404) return;
      }
    } catch {
      if (!signal.aborted) live('teamctl web does not answer, trying again…', true);
    }
    await new Promise((done) => setTimeout(done, pause));
  }
}

const PILLS = [['need', '●', 'need you'], ['bad', '▲', 'stuck'], ['work', '◐', 'working'], ['', '○', 'idle']];

function head(state) {
  const counts = state.groups.map((group) => group.count);
  $('#team').textContent = state.team;
  document.title = (counts[0] ? `(${counts[0]}) ` : '') + state.team;
  const pills = PILLS.map(([name, glyph, text], at) => [name, `${glyph} ${counts[at]} ${text}`, counts[at]]);
  const all = [...pills, ['', state.progress, state.progress], ['', [state.tokens, state.cost].filter(Boolean).join(' · '), state.tokens]].filter(([, , shown]) => shown);
  $('#counts').replaceChildren(...all.map(([name, text]) => h(`span.pill${name && `.${name}`}`, {}, text)));
  $('#waiting')?.replaceChildren(state.waiting ? String(state.waiting) : '');
  if (state.trouble) live(state.trouble, true);
  else live(state.daemon ? 'live' : 'no daemon runs', !state.daemon);
}

let left = new AbortController();

function show() {
  left.abort();
  left = new AbortController();
  const [, name = '', argument] = location.hash.split('/');
  const shown = Object.hasOwn(views, name) ? name : 'overview';
  for (const link of document.querySelectorAll('nav a')) {
    link.removeAttribute('aria-current');
    if (link.hash !== `#/${shown}`) continue;
    link.setAttribute('aria-current', 'page');
    link.scrollIntoView({ block: 'nearest', inline: 'center' });
  }
  const state = {};
  const main = h('div');
  $('#main').replaceChildren(main);
  const view = views[shown].make(main, argument, state);
  const event = (data) => {
    Object.assign(state, data);
    head(state);
    view.draw();
    document.body.dataset.shown = shown;
  };
  let stream = new AbortController();
  const begin = () => {
    stream.abort();
    stream = new AbortController();
    follow(view.query(), event, AbortSignal.any([left.signal, stream.signal]));
  };
  view.begin = begin;
  begin();
}

$('nav').append(...Object.entries(views).map(([name, { title }]) =>
  h('a', { href: `#/${name}` }, title, name === 'requests' && h('b', { id: 'waiting', 'aria-label': 'pending' }))));
addEventListener('hashchange', () => { if (location.hash.startsWith('#/')) show(); });
show();
