//! Tables of queries and what they choose.
