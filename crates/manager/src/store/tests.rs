//! Both databases, one set of tests.
