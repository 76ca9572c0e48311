//! Plans, checked against what operators would expect.
