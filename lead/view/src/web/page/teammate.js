// One teammate: what it does, what it asks, its tasks, and what a person can order.

import { drawCards } from './cards.js';
import { age, h, keep } from './element.js';
import { interrupt, requestPlan, shutdown, startAgain } from './orders.js';
import { CLASS, eventRow, facts, glyph, order, taskRow } from './parts.js';
import { changes } from './review.js';
import { sendBox } from './send.js';

/** What is said first of a teammate; the rest folds. */
const FIRST = new Set(['task', 'unread', 'gate', 'agent', 'model', 'tokens', 'cost', 'workspace', 'spawned', 'restarts', 'ended', 'note']);

/** Shows what its commands print, as it comes: the end of each, which stays in view unless a person has scrolled. */
function drawOutputs(box, state) {
  keep(box, state.outputs.map(({ part, title }) => ({ part, title })), ({ part }) => part, ({ part, title }) => h('div', {},
    h('div.heading', {}, h('h2', {}, title), h('span', { role: 'status' })), h('pre.log', { tabindex: 0, 'aria-label': title, 'data-output': part })));
  state.outputs.forEach(({ part, state: how }, at) => {
    const [heading, output] = box.children[at].children;
    heading.lastChild.textContent = how;
    heading.lastChild.className = how.endsWith('…') ? 'work' : 'dim';
    output.hidden = !state[part];
    if (output.textContent === state[part]) return;
    const isAtEnd = !output.textContent || output.scrollTop + output.clientHeight > output.scrollHeight - 20;
    output.textContent = state[part];
    if (isAtEnd) output.scrollTop = output.scrollHeight;
  });
}

export const teammate = {
  make(element, name, state) {
    const [head, acts, cards, tasks, events, about, work, outputs] = [h('div'), h('div.acts'), h('div'), h('ul.rows.list'), h('ul.rows.feed'), h('div'), h('section'), h('section')];
    const form = h('div');
    const section = (title, content) => h('section', {}, h('h2', {}, title), content);
    const ofTasks = section('Its tasks', tasks);
    element.append(head, acts, h('div.split', {}, h('div', {}, cards, form, ofTasks, outputs, section('Its last events', events), work), about));
    // It stands below the events, which may be many.
    const showWork = () => {
      work.replaceChildren(h('h2', {}, 'Its changes'), changes(name));
      work.scrollIntoView();
    };
    const orders = (one) => [
      h('a.button', { href: `#/conversation/${name}` }, 'Conversation'),
      ...state.read_only ? [] : one.ended ? [order('Start again', () => startAgain(name), '.yes')]
        : [order('Interrupt', () => interrupt(name)), order('Ask for a plan', () => requestPlan(name)), order('Shut down', () => shutdown(name), '.no')],
      h('button', { type: 'button', onclick: showWork }, 'Changes'),
    ];
    const draw = () => {
      const { member: one } = state;
      head.replaceChildren(h('h2.title', {}, glyph(one.group), ' ', one.name, one.role && h('span.dim', {}, ` ${one.role}`)),
        h('p', {}, h(`strong.${CLASS[one.group]}`, {}, one.word), h('span.dim', {}, ' since ', age(one.since)), one.what && [h('span.dim', {}, ' · '), one.what]));
      keep(acts, [{ ended: one.ended, read: state.read_only }], () => 'acts', () => h('div.acts', {}, orders(one)));
      drawCards(cards, state.requests, null, state);
      if (!form.firstChild && !state.read_only) form.append(sendBox(name));
      keep(tasks, state.tasks, (task) => task.id, taskRow);
      ofTasks.hidden = !state.tasks.length;
      drawOutputs(outputs, state);
      keep(events, state.events, (step) => [step.at, step.from, step.to, step.what], eventRow);
      const isOpen = about.querySelector('details')?.open;
      keep(about, [one.facts], () => 'facts', () => {
        const is = (first) => one.facts.filter(([label]) => label !== 'role' && label !== 'doing' && FIRST.has(label) === first);
        return h('div', {}, h('h2', {}, 'Facts'), facts(is(true)), h('details', { open: isOpen }, h('summary', {}, 'Everything'), facts(is(false))));
      });
    };
    return { query: () => `view=teammate&name=${encodeURIComponent(name)}`, draw };
  },
};
