// What one call has changed in a text, as lines with their signs.

import { h } from './element.js';

function line(text) {
  const kind = { '+': 'ins', '-': 'del', '@': 'hunk' }[text[0]];
  return h(`span${kind ? `.${kind}` : ''}`, {}, `${text}\n`);
}

/** Shows the lines of a diff. */
export const lines = (all) => h('pre.diff', { tabindex: 0 }, h('code', {}, all.map(line)));

/** Makes the lines of a change of a text: what both have at the beginning and at the end is not shown, but for a line. */
export function between(before, after) {
  const [old, now] = [before, after].map((text) => (text ? text.split('\n') : []));
  let [first, last] = [0, 0];
  while (first < old.length && first < now.length && old[first] === now[first]) first += 1;
  while (last < old.length - first && last < now.length - first && old.at(-1 - last) === now.at(-1 - last)) last += 1;
  const around = (text) => (text === undefined ? [] : [` ${text}`]);
  return [...around(old[first - 1]), ...old.slice(first, old.length - last).map((text) => `-${text}`), ...now.slice(first, now.length - last).map((text) => `+${text}`),
    ...around(last ? old[old.length - last] : undefined)];
}
