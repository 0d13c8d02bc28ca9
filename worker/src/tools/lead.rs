//! What the lead agent's own tools do.
