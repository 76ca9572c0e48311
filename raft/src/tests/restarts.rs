//! Restarts, clean and not: what was acknowledged is there afterwards, and reads wait until it is.
