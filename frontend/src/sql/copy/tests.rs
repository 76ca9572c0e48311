//! Tests of the COPY formats.
