// The views. Each has `make(element, argument, state)`, which returns `query()` and `draw()`; one with `under` has no place of its own in the
// navigation.

import { board } from './board.js';
import { conversation } from './conversation.js';
import { cost } from './cost.js';
import { overview } from './overview.js';
import { request, requests } from './requests.js';
import { sequence } from './sequence.js';
import { task } from './task.js';
import { teammate } from './teammate.js';
import { timeline } from './timeline.js';

export const views = { overview, requests, board, conversation, sequence, timeline, cost, task, teammate, request };
