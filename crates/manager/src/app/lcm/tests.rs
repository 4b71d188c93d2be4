//! Tables of requests and what follows from them.
