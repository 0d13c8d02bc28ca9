// One teammate: what it does, what it asks, its tasks, and what a person can order.

import { drawCards } from './cards.js';
import { changes } from './diff.js';
import { age, h, keep } from './element.js';
import { interrupt, requestPlan, shutdown, startAgain } from './orders.js';
import { CLASS, eventRow, facts, glyph, order, taskRow } from './parts.js';
import { sendBox } from './send.js';

/** What is said first of a teammate; the rest folds. */
const FIRST = new Set(['task', 'unread', 'gate', 'agent', 'model', 'tokens', 'cost', 'workspace', 'spawned', 'restarts', 'ended', 'note']);

export const teammate = {
  title: 'Teammate',
  under: 'overview',
  make(element, name, state) {
    const [head, acts, cards, tasks, events, about, work] = [h('div'), h('div'), h('div'), h('ul.rows.list'), h('ul.rows.feed'), h('div'), h('section')];
    const form = h('div');
    const section = (title, content) => h('section', {}, h('h2', {}, title), content);
    const ofTasks = section('Its tasks', tasks);
    element.append(head, acts, h('div.split', {}, h('div', {}, cards, form, ofTasks, section('Its last events', events), work), about));
    const orders = (one) => [
      h('a.button', { href: `#/conversation/${name}` }, 'Conversation'),
      ...state.read_only ? [] : one.ended ? [order('Start again', () => startAgain(name), '.yes')]
        : [order('Interrupt', () => interrupt(name)), order('Ask for a plan', () => requestPlan(name)), order('Shut down', () => shutdown(name), '.no')],
      h('button', { type: 'button', onclick: () => work.replaceChildren(h('h2', {}, 'Its changes'), changes(name)) }, 'Changes'),
    ];
    const draw = () => {
      const { member: one } = state;
      head.replaceChildren(h('h2.title', {}, glyph(one.group), ' ', one.name, one.role && h('span.dim', {}, ` ${one.role}`)),
        h('p', {}, h(`strong.${CLASS[one.group]}`, {}, one.word), h('span.dim', {}, ' since ', age(one.since)), one.what && [h('span.dim', {}, ' · '), one.what]));
      keep(acts, [{ ended: one.ended, read: state.read_only }], () => 'acts', () => h('div.acts', {}, orders(one)));
      drawCards(cards, state.requests, true, state);
      if (!form.firstChild && !state.read_only) form.append(sendBox(name));
      keep(tasks, state.tasks, (task) => task.id, taskRow);
      ofTasks.hidden = !state.tasks.length;
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
