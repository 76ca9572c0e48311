//! The language that Partita's services share.
