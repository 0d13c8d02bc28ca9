// The tasks in columns.

import { h, keep } from './element.js';
import { addTask } from './orders.js';
import { CLASS, empty, order } from './parts.js';

const line = (task) => h(`li${task.blocked ? '.blocked' : ''}`, {},
  h('a', { href: `#/task/${task.id}`, 'data-item': '', title: task.subject }, h('span.dim', {}, task.id), ' ', task.subject), h(`span.${CLASS[task.group]}`, { title: task.how }, task.how));

export const board = {
  title: 'Board',
  make(element, _, state) {
    const [columns, none, find] = [h('div.board'), h('div'), h('input', { type: 'search', 'aria-label': 'Find a task', placeholder: 'Find a task  /' })];
    const bar = h('div.bar');
    const reading = h('p.dim', { role: 'status' });
    element.append(bar, columns, none, reading);
    find.addEventListener('input', () => draw());
    const fits = ({ id, subject, how }) => `${id} ${subject} ${how}`.toLowerCase().includes(find.value.toLowerCase());
    const draw = () => {
      if (!bar.firstChild) bar.append(find);
      reading.textContent = state.reading ? `still reading ${state.reading} files` : '';
      const isEmpty = !state.columns.some((column) => column.count);
      [columns.hidden, bar.hidden] = [isEmpty, isEmpty];
      none.replaceChildren(isEmpty ? empty('There are no tasks.', 'A teammate claims a task, works on it and submits it; its check decides whether it is done.',
        !state.read_only && h('div.acts', {}, order('Add a task', () => addTask(state), '.yes'))) : '');
      const shown = state.columns.map((column) => ({ ...column, tasks: column.tasks.filter(fits) }));
      keep(columns, shown.map(({ title, count }) => ({ title, count })), (column) => column.title, ({ title, count }) => h(`section${count ? '' : '.vacant'}`, {},
        h('h2', {}, `${title} · ${count}`), h('ul.tasks'), h('p.dim')));
      shown.forEach(({ count, tasks }, at) => {
        const [, list, more] = columns.children[at].children;
        keep(list, tasks, (task) => task.id, line);
        more.textContent = count > state.columns[at].tasks.length ? `and ${count - state.columns[at].tasks.length} more` : '';
      });
    };
    return { query: () => 'view=board', draw };
  },
};
