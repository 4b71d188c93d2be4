//! A real listener, real requests.
