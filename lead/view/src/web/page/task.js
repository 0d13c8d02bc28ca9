// One task: what is to be done, where it stands, its check and its work.

import { h, keep, markdown } from './element.js';
import { cancelTask, editTask, retryTask } from './orders.js';
import { CLASS, facts, order } from './parts.js';
import { changes } from './review.js';

const reference = ({ id, subject, done }) => h('li', {}, h('a', { href: `#/task/${id}` }, `${id} ${subject ?? ''}`), done && h('span.work', {}, ' ✓ done'));

export const task = {
  make(element, id, state) {
    const [head, acts, about, links, log, work] = [h('div'), h('div.acts'), h('div'), h('div'), h('section'), h('section')];
    const output = h('pre.log', { tabindex: 0 });
    const running = h('span.work', { role: 'status' });
    log.append(h('div.heading', {}, h('h2', {}, 'Output of its check'), running), output);
    element.append(head, acts, h('div.split', {}, h('div', {}, about, log), links), work);
    let shownWork = '';
    const orders = (shown) => [
      shown.request && h('a.button.yes', { href: `#/request/${shown.request}` }, 'Review the work'),
      shown.edit && shown.whole && order('Edit', () => editTask(shown, state)),
      shown.retry && order('Try again', () => retryTask(shown, state)),
      shown.cancel && order('Cancel', () => cancelTask(shown), '.no'),
    ].filter(Boolean);
    const draw = () => {
      const { task: shown } = state;
      head.replaceChildren(h('h2.title', {}, h('span.dim', {}, shown.id), ' ', shown.subject), h('p', {}, h(`strong.${CLASS[shown.group]}`, {}, shown.status), h('span.dim', {}, ' · '), shown.how,
        shown.owner && !shown.how.startsWith(shown.owner) && [h('span.dim', {}, ' · '), h('a', { href: `#/teammate/${shown.owner}` }, shown.owner)]));
      keep(acts, state.read_only ? [] : [shown], () => 'acts', () => h('div.acts', {}, orders(shown)));
      keep(about, [shown.description], () => 'text', () => (shown.description ? markdown(shown.description) : h('p.dim', {}, 'It has no description.')));
      keep(links, [shown], () => 'facts', () => h('div', {}, shown.blockers.length ? [h('h2', {}, 'After'), h('ul.plain', {}, shown.blockers.map(reference))] : '',
        shown.blocks.length ? [h('h2', {}, 'Before'), h('ul.plain', {}, shown.blocks.map(reference))] : '', shown.owner && h('p', {}, h('span.dim', {}, 'Worked on by '), h('a', { href: `#/teammate/${shown.owner}` }, shown.owner)), h('h2', {}, 'Facts'), facts(shown.facts.filter(([label]) => !['blocked by', 'blocks', 'owner'].includes(label)))));
      const isAtEnd = output.scrollTop + output.clientHeight > output.scrollHeight - 20;
      log.hidden = state.log === null && !shown.checking;
      running.textContent = shown.checking ? 'it runs…' : '';
      if (output.textContent !== state.log) output.textContent = state.log ?? '';
      if (isAtEnd) output.scrollTop = output.scrollHeight;
      // The work of each submission is read once.
      const submission = shown.submitted ? shown.facts.find(([label]) => label === 'submitted')?.[1] ?? 'yes' : '';
      if (submission !== shownWork) {
        shownWork = submission;
        work.replaceChildren(...submission ? [h('h2', {}, 'Its work'), changes(shown.id)] : []);
      }
    };
    return { query: () => `view=task&id=${encodeURIComponent(id)}`, draw };
  },
};
