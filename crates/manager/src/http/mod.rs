//! Requests to calls, results to answers.
