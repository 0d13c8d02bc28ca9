// What the page asks the server, and the key with which it does.

const KEY = 'teamd-key';

// The key stays in this tab: it is in no cookie, no history and no other tab.
const given = /^#([0-9a-f]{64})(\/.*)?$/.exec(location.hash);
if (given) {
  sessionStorage.setItem(KEY, given[1]);
  history.replaceState(null, '', `${location.pathname}#${given[2] ?? '/overview'}`);
}

/** Asks the server with the key. */
export const ask = (path, more) => fetch(path, { ...more, headers: { Authorization: `Bearer ${sessionStorage.getItem(KEY)}`, ...more?.headers } });

/** Has something done; returns whether it is, and what came of it. */
export async function post(path, order) {
  try {
    const answer = await ask(path, { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(order) });
    const said = await answer.json();
    return [answer.ok, said.said ?? said.error];
  } catch {
    return [false, 'teamctl web does not answer: it may or may not be done'];
  }
}

/** Returns a view, once. */
export async function get(query) {
  try {
    const answer = await ask(`view?${query}`);
    return answer.ok ? await answer.json() : { text: (await answer.json()).error };
  } catch {
    return { text: 'teamctl web does not answer' };
  }
}
