// The requests that wait for an answer, and one request with its whole text and its answer.

import { card, drawCards } from './cards.js';
import { Comments } from './comments.js';
import { clock, h, keep, markdown } from './element.js';
import { empty, eventRow } from './parts.js';
import { changes } from './review.js';

/** The work that a review is about, and the comments on it. */
function workOf(request, state) {
  const comments = request.judged && !state.read_only ? new Comments(request.id) : null;
  return { comments, work: changes(request.task, { comments, hasFacts: true }) };
}

export const requests = {
  make(element, _, state) {
    const [list, more] = [h('div'), h('div')];
    element.append(h('h2', {}, 'Requests that wait, the oldest first'), list, more);
    const draw = () => {
      const { count, shown } = state.requests;
      drawCards(list, shown, workOf, state);
      if (count === 0) more.replaceChildren(empty('No request waits for an answer.', 'A plan, work that is to be reviewed and a permission that an agent asks for are shown here. Ask a teammate for a plan on its page.'));
      else more.replaceChildren(count > shown.length ? h('p.dim', {}, `${count - shown.length} more follow when these are answered.`) : '');
    };
    return { query: () => 'view=requests', draw };
  },
};

/** A request that was answered. */
function answered(request) {
  const style = { approved: 'work', rejected: 'bad' }[request.status] ?? 'dim';
  return h('article.card.done', {}, h('div.top', {}, h('a.name', { href: `#/teammate/${request.member}` }, request.member), h('span.dim', {}, request.kind),
    h(`strong.${style}`, {}, request.status), request.resolved && h('span.dim', {}, clock(request.resolved)), h('code.dim.right', {}, request.id)),
  markdown(request.text), request.reason && h('blockquote', {}, markdown(request.reason)));
}

export const request = {
  make(element, id, state) {
    const [one, events] = [h('div'), h('ul.rows.feed')];
    const task = h('p');
    element.append(task, one, h('h2', {}, 'What happened to it'), events);
    const draw = () => {
      const { request: shown } = state;
      task.replaceChildren(shown.task ? h('a', { href: `#/task/${shown.task}` }, `Task ${shown.task}`) : '');
      keep(one, [shown], () => shown.id, () => (shown.pending ? card(shown, workOf, state) : answered(shown)));
      keep(events, state.events, (step) => [step.at, step.what], eventRow);
    };
    return { query: () => `view=request&id=${encodeURIComponent(id)}`, draw };
  },
};
