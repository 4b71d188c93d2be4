//! Which VIM is meant, and what of it is hidden.
