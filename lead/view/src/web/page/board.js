// The tasks in columns.

import { h, keep } from './element.js';
import { addTask } from './orders.js';
import { CLASS, empty, order } from './parts.js';

/** How long nothing is typed before it is looked for, in milliseconds, and how much of it is. */
const [TYPED, LONGEST] = [150, 100];

const line = (task) => h(`li${task.blocked ? '.blocked' : ''}`, {},
  h('a', { href: `#/task/${task.id}`, 'data-item': '', title: task.subject }, h('span.dim', {}, task.id), ' ', task.subject), h(`span.${CLASS[task.group]}`, { title: task.how }, task.how));

export const board = {
  make(element, _, state) {
    const [columns, none, find] = [h('div.board'), h('div'), h('input', { type: 'search', 'aria-label': 'Find a task', placeholder: 'Find a task  /' })];
    const [bar, count] = [h('div.bar'), h('span.dim', { role: 'status' })];
    const reading = h('p.dim', { role: 'status' });
    element.append(bar, columns, none, reading);
    let timer = 0;
    // The server looks through all tasks, and not only those that are shown.
    find.addEventListener('input', () => {
      clearTimeout(timer);
      timer = setTimeout(() => view.begin(), TYPED);
    });
    const draw = () => {
      if (!bar.firstChild) bar.append(find, count);
      reading.textContent = state.reading ? `still reading ${state.reading} files` : '';
      const isEmpty = !state.tasks;
      [columns.hidden, bar.hidden] = [isEmpty, isEmpty];
      none.replaceChildren(isEmpty ? empty('There are no tasks.', 'A teammate claims a task, works on it and submits it; its check decides whether it is done.',
        !state.read_only && h('div.acts', {}, order('Add a task', () => addTask(state), '.yes'))) : '');
      const found = state.columns.reduce((sum, column) => sum + column.count, 0);
      count.textContent = state.find ? `${found} of ${state.tasks} tasks` : '';
      keep(columns, state.columns.map(({ title, count }) => ({ title, count })), (column) => column.title, ({ title, count }) => h(`section${count ? '' : '.vacant'}`, {},
        h('h2', {}, `${title} · ${count}`), h('ul.tasks'), h('p.dim')));
      state.columns.forEach(({ count, tasks }, at) => {
        const [, list, more] = columns.children[at].children;
        keep(list, tasks, (task) => task.id, line);
        more.textContent = count > state.columns[at].tasks.length ? `and ${count - state.columns[at].tasks.length} more` : '';
      });
    };
    const view = { query: () => `view=board&find=${encodeURIComponent(find.value.trim().slice(0, LONGEST))}`, draw };
    return view;
  },
};
