//! Random bytes for secrets: salts, nonces and keys.

use crate::error::SqlError;

/// Bytes of the system's cryptographic random generator.
///
/// # Errors
/// When the system has none, or refuses it.
pub fn bytes<const N: usize>() -> Result<[u8; N], SqlError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| SqlError::internal(format!("could not get random bytes: {error}")))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn bytes_differ_from_call_to_call() {
        assert_ne!(bytes::<32>().unwrap(), bytes::<32>().unwrap());
    }
}
