// The views. Each has `make(element, argument, state)`, which returns `query()` and `draw()`; one with `under` has no place of its own in the
// navigation. The page opens with the overview, so the modules of the others come after it is shown.

import { overview } from './overview.js';

const modules = {
  board: () => import('./board.js'),
  conversation: () => import('./conversation.js'),
  cost: () => import('./cost.js'),
  request: () => import('./requests.js'),
  requests: () => import('./requests.js'),
  sequence: () => import('./sequence.js'),
  task: () => import('./task.js'),
  teammate: () => import('./teammate.js'),
  timeline: () => import('./timeline.js'),
};

const later = (name, title, under) => ({ title, under, make: async (...of) => (await modules[name]())[name].make(...of) });

export const views = {
  overview,
  requests: later('requests', 'Requests'),
  board: later('board', 'Board'),
  conversation: later('conversation', 'Conversation'),
  sequence: later('sequence', 'Sequence'),
  timeline: later('timeline', 'Timeline'),
  cost: later('cost', 'Cost'),
  task: later('task', 'Task', 'board'),
  teammate: later('teammate', 'Teammate', 'overview'),
  request: later('request', 'Request', 'requests'),
};

/** Loads the modules of all views: the next one is then shown at once, also where the server has gone away. */
export function loadAll() {
  for (const load of Object.values(modules)) load().catch(reportError);
}
