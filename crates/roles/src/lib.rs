//! What machines become: pure planners beside their task handlers.
