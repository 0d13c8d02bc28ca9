// The stream of the overview, which is asked for while the other modules still come.

import { ask } from './server.js';

const ALL = 'teamd-all-events';

/** Tells whether this tab also shows what only says how the team runs; with an argument it does from now on, or not. */
export function wantsAll(wants) {
  if (wants !== undefined) sessionStorage.setItem(ALL, wants ? 'yes' : 'no');
  return sessionStorage.getItem(ALL) === 'yes';
}

export const overviewQuery = () => `view=overview${wantsAll() ? '&news=all' : ''}`;

let begun = null;

function begin(query) {
  const stop = new AbortController();
  const answer = ask(`events?${query}`, { signal: stop.signal });
  // What went wrong is said to the one that takes it.
  answer.catch(() => {});
  begun = { query, stop, answer };
}

/** Returns the answer to a query, which may be on its way. */
export function stream(query, signal) {
  const first = begun;
  begun = null;
  if (first?.query === query && !signal.aborted) {
    signal.addEventListener('abort', () => first.stop.abort());
    return first.answer;
  }
  first?.stop.abort();
  return ask(`events?${query}`, { signal });
}

if (/^#\/overview$/.test(location.hash)) begin(overviewQuery());
