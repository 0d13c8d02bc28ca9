// What several views have in common: words of a status, rows of teammates, tasks and events, facts.

import { age, h } from './element.js';

/** The style of what a member or a task needs. */
export const CLASS = { 'NEEDS YOU': 'need', STUCK: 'bad', WORKING: 'work', IDLE: 'idle', ENDED: 'ended' };
const GLYPH = { 'NEEDS YOU': '●', STUCK: '▲', WORKING: '◐', IDLE: '○', ENDED: '·' };
const isName = (name) => /^[a-z0-9_-]+$/.test(name) && !['user', 'teamd', 'all'].includes(name);

/** A sign of what a member needs; its word stands beside it. */
export const glyph = (group) => h(`span.${CLASS[group]}`, { 'aria-hidden': 'true' }, GLYPH[group]);

/** A member in one line. */
export function memberRow(one, group) {
  const style = CLASS[group];
  const isOpen = group !== 'IDLE' && group !== 'ENDED';
  return h('li', {}, glyph(group), h('a', { href: `#/teammate/${one.name}`, 'data-item': '' }, one.name), h(`span.${style}`, {}, one.word, ' ', isOpen && age(one.since)),
    h(`span.what${isOpen ? '' : '.dim'}`, { title: one.what }, one.what), h('span.dim', {}, one.cost ?? one.tokens ?? ''));
}

/** A task in one line. */
export const taskRow = (task) => h('li', {}, h('span.dim', {}, task.id), h('a', { href: `#/task/${task.id}`, 'data-item': '' }, task.subject), h(`span.${CLASS[task.group]}`, {}, task.how));

const agent = (name) => (isName(name) ? h('a', { href: name === 'lead' ? '#/conversation/lead' : `#/teammate/${name}` }, name) : name);

/** An event in one line; that of a request leads to it. */
export function eventRow(step) {
  const text = [step.what, step.text].filter(Boolean).join(': ');
  const style = step.bad ? 'bad' : null;
  return h('li', {}, h('span.dim', {}, age(step.at)), h('span', {}, agent(step.from), step.to && ' → ', step.to && agent(step.to)),
    step.request ? h('a', { class: style, href: `#/request/${step.request}`, title: step.text }, text) : h('span', { class: style, title: step.text }, text));
}

/** Facts with their labels. */
export const facts = (all) => h('dl.facts', {}, all.map(([label, text]) => [h('dt', {}, label), h('dd', {}, text)]));

/** A place where nothing is, with what to do about it. */
export const empty = (title, text, ...more) => h('div.empty', {}, h('p', {}, h('strong', {}, title)), text && h('p', {}, text), more);

/** A button of an order. */
export const order = (text, onclick, style = '') => h(`button${style}`, { type: 'button', onclick }, text);
