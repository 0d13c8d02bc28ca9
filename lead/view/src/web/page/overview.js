// The team at a glance: what needs an answer, what each teammate does, what happened last.

import { drawCards } from './cards.js';
import { h, keep } from './element.js';
import { addTask, spawn } from './orders.js';
import { overviewQuery, wantsAll } from './first.js';
import { empty, eventRow, memberRow, order } from './parts.js';

function members({ title, count, members: all }) {
  return h('section', {}, h('h2', {}, `${title} · ${count}`), h('ul.rows.members', {}, all.map((one) => memberRow(one, title))),
    count > all.length && h('p.dim', {}, `and ${count - all.length} more`));
}

export const overview = {
  title: 'Overview',
  make(element, _, state) {
    const [cards, more, groups, feed] = [h('div.asks'), h('p.dim'), h('div.groups'), h('ul.rows.feed')];
    const all = h('input', { type: 'checkbox', checked: wantsAll(), onchange: () => {
      wantsAll(all.checked);
      feed.isKept = false;
      view.begin();
    } });
    const asks = h('div', {}, h('h2', {}, 'Requests'), cards, more);
    const news = h('section.news', {}, h('div.heading', {}, h('h2', {}, 'Last events'), h('label.dim', {}, all, ' also starts and the like')), feed);
    const split = h('div.split', {}, asks, h('div', {}, groups, news));
    const none = h('div');
    element.append(none, split);
    const draw = () => {
      const { count, shown } = state.requests;
      const isEmpty = !state.groups.some((group) => group.count);
      asks.hidden = count === 0;
      split.classList.toggle('one', count === 0);
      drawCards(cards, shown, null, state);
      more.textContent = count > shown.length ? `and ${count - shown.length} more` : '';
      keep(groups, state.groups.filter((group) => group.count), (group) => group.title, members);
      none.replaceChildren(isEmpty ? empty('There are no teammates.', 'Spawn one and tell it what to do, or add tasks that it takes by itself. `teamctl up` starts those of team.toml.',
        !state.read_only && h('div.acts', {}, order('Spawn a teammate', () => spawn(state), '.yes'), order('Add a task', () => addTask(state)))) : '');
      news.hidden = !state.feed.length && !all.checked;
      keep(feed, state.feed, (step) => [step.at, step.from, step.to, step.what], eventRow);
    };
    const view = { query: overviewQuery, draw };
    return view;
  },
};
