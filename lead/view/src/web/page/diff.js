// What was changed: the work of a teammate, of a task, or of one call. A plain view; files fold.

import { h } from './element.js';
import { ask } from './server.js';

/** A longer change of one file is folded at first. */
const FOLDED = 200;

function line(text) {
  const kind = { '+': 'ins', '-': 'del', '@': 'hunk' }[text[0]];
  return h(`span${kind ? `.${kind}` : ''}`, {}, `${text}\n`);
}

/** Shows the lines of a diff. */
export const lines = (all) => h('pre.diff', { tabindex: 0 }, h('code', {}, all.map(line)));

function filesOf(diff) {
  const files = [];
  for (const text of diff.split('\n')) {
    if (text.startsWith('diff --git ')) files.push({ name: text.replace(/^.* b\//, ''), lines: [], added: 0, removed: 0 });
    else if (files.length && !/^(index |--- |\+\+\+ )/.test(text)) {
      const file = files.at(-1);
      file.lines.push(text);
      file.added += text.startsWith('+');
      file.removed += text.startsWith('-');
    }
  }
  return files;
}

function file({ name, lines: all, added, removed }) {
  return h('details.file', { open: all.length <= FOLDED }, h('summary', {}, h('code', {}, name), ' ', h('span.work', {}, `+${added}`), ' ', h('span.bad', {}, `−${removed}`)), lines(all));
}

/** Shows what the submission of a task, or a teammate, has changed. (A view that takes comments has its place here.) */
export function changes(of) {
  const box = h('section.changes', { 'aria-label': 'Changes', 'aria-busy': 'true' }, h('p.dim', {}, 'reading the changes…'));
  const show = async () => {
    let [files, said] = [[], 'teamctl web does not answer'];
    try {
      const { diff, error } = await (await ask(`diff?of=${of}`)).json();
      files = filesOf(diff ?? '');
      said = error ?? diff ?? '';
    } catch { /* said already */ }
    const count = (what) => files.reduce((sum, one) => sum + one[what], 0);
    const all = files.length === 1 ? '1 file' : `${files.length} files`;
    box.removeAttribute('aria-busy');
    box.replaceChildren(...files.length ? [h('p.dim', {}, `${all}, +${count('added')} −${count('removed')}`), ...files.map(file)] : [h('p.dim.pre', {}, said)]);
  };
  box.ready = show();
  return box;
}

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
