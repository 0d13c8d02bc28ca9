// Tokens and cost: of the team over time, of each teammate and of each task.

import { clock, h, keep } from './element.js';
import { empty } from './parts.js';

const SLOTS = 48;
const KINDS = ['input', 'cached', 'output'];
const number = (count) => count.toLocaleString('en');

/** Draws tokens over time: a bar for each part of the time, one kind above the other. */
function chart(slots, highest, [width, height], name) {
  const bars = slots.flatMap(([slot, ...counts]) => {
    let top = height;
    return counts.map((count, kind) => {
      const tall = count && Math.max(1, count / highest * height);
      top -= tall;
      return tall > 0 && h(`rect.${KINDS[kind]}`, { x: slot * width / SLOTS, y: Math.max(0, top).toFixed(1), width: (width / SLOTS - .5).toFixed(2), height: tall.toFixed(1) });
    });
  });
  return h('svg', { role: 'img', 'aria-label': name, viewBox: `0 0 ${width} ${height}`, width, height, preserveAspectRatio: 'none' }, bars);
}

const highestOf = (slots) => slots.reduce((most, [, ...counts]) => Math.max(most, counts[0] + counts[1] + counts[2]), 1);

function table(first, second) {
  const heads = [first, second, 'Over time', 'Input', 'Cached', 'Output', 'Cost'].map((title) => h('th', { scope: 'col' }, title));
  const rows = h('tbody');
  const more = h('p.dim');
  const box = h('section', {}, h('h2', {}, `By ${first.toLowerCase()}`), h('div.scroll', { tabindex: 0, role: 'region', 'aria-label': `Cost by ${first.toLowerCase()}` },
    h('table.costs', {}, h('thead', {}, h('tr', {}, heads)), rows)), more);
  const draw = (all, count) => {
    box.hidden = !all.length;
    rows.parentElement.classList.toggle('unpriced', all.every((one) => !one.cost));
    const highest = Math.max(1, ...all.map((one) => highestOf(one.over)));
    keep(rows, all.map((one) => ({ ...one, highest })), (one) => one.name, (one) => h('tr', {},
      [one.name, one.what, chart(one.over, highest, [120, 22], `Tokens of ${one.name} over time`), number(one.input), number(one.cached), number(one.output), one.cost ?? '-']
        .map((shown) => h('td', {}, shown))));
    more.textContent = count > all.length ? `and ${count - all.length} more` : '';
  };
  return { box, draw };
}

export const cost = {
  make(element, _, state) {
    const [members, tasks] = [table('Teammate', 'Model'), table('Task', 'Subject')];
    const [none, graph, times, reading] = [empty('No tokens were used yet.', 'What each teammate and each task uses and costs is shown here, once a model has answered.'), h('div.graph'), h('div.times.dim'), h('p.dim', { role: 'status' })];
    const legend = h('div.bar', {}, KINDS.map((kind) => h('span.dim.key', {}, h('svg', { width: 12, height: 12, 'aria-hidden': 'true' }, h(`rect.${kind}`, { width: 12, height: 12 })), kind)));
    const all = h('section', {}, h('h2', {}, 'Tokens over time'), legend, graph, times);
    element.append(all, members.box, tasks.box, none, reading);
    const draw = () => {
      none.hidden = state.members.length > 0;
      all.hidden = !state.members.length;
      const highest = highestOf(state.all);
      graph.replaceChildren(chart(state.all, highest, [960, 120], `Tokens of the team over time, at most ${number(highest)} in one part`));
      times.replaceChildren(h('span', {}, clock(state.from)), h('span', {}, `highest bar: ${number(highest)} tokens`), h('span', {}, clock(state.to)));
      members.draw(state.members, state.counts[0]);
      tasks.draw(state.tasks, state.counts[1]);
      reading.textContent = state.reading ? `still reading ${state.reading} files` : '';
    };
    return { query: () => 'view=cost', draw };
  },
};
