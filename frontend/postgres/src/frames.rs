//! A socket that refuses messages which are too long.
//!
//! A message begins with its length, and the codec would wait for up to a gigabyte of it. This looks
//! at the lengths as the bytes pass by, before the codec sees them.
//!
//! Invariant: `missing` bytes of the message at hand have not passed yet, or its first bytes are in
//! `head`.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest message.
pub(crate) const MESSAGE_BYTES_MAX: u32 = 64 << 20;

const SSL_REQUEST: u32 = 80_877_103;
const GSS_REQUEST: u32 = 80_877_104;
/// A length and a code.
const STARTUP_HEAD: usize = 8;
/// A type and a length.
const HEAD: usize = 5;

/// A socket with a bound on messages.
pub(crate) struct Frames<S> {
    inner: S,
    head: Vec<u8>,
    missing: usize,
    /// Until the startup message has come, messages have no type.
    started: bool,
}

impl<S> Frames<S> {
    /// Looks at what is read from a socket, from its first byte on.
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, head: Vec::with_capacity(STARTUP_HEAD), missing: 0, started: false }
    }

    fn pass(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            if self.missing > 0 {
                let passing = self.missing.min(bytes.len());
                self.missing -= passing;
                bytes = &bytes[passing..];
                continue;
            }
            let wanted = if self.started { HEAD } else { STARTUP_HEAD };
            let take = (wanted - self.head.len()).min(bytes.len());
            self.head.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
            if self.head.len() == wanted {
                self.missing = self.begin()?;
                self.head.clear();
            }
        }
        Ok(())
    }

    /// How many bytes follow the head.
    fn begin(&mut self) -> io::Result<usize> {
        let number = |at: usize| {
            let bytes = [self.head[at], self.head[at + 1], self.head[at + 2], self.head[at + 3]];
            u32::from_be_bytes(bytes)
        };
        let (length, counted) = if self.started {
            (number(1), 4)
        } else {
            let code = number(4);
            let length = number(0);
            self.started = ![SSL_REQUEST, GSS_REQUEST].contains(&code);
            (length, 8)
        };
        if !(counted..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("a message of {length} bytes; {MESSAGE_BYTES_MAX} are the most"),
            ));
        }
        Ok((length - counted) as usize)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Frames<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.inner).poll_read(cx, buf);
        if let Poll::Ready(Ok(())) = read {
            self.pass(&buf.filled()[before..])?;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Frames<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn startup() -> Vec<u8> {
        let mut bytes = 8_u32.to_be_bytes().to_vec();
        bytes.extend(196_608_u32.to_be_bytes());
        bytes
    }

    #[test]
    fn messages_pass_however_they_are_cut() {
        let mut bytes = 8_u32.to_be_bytes().to_vec();
        bytes.extend(SSL_REQUEST.to_be_bytes());
        bytes.extend(startup());
        for body in [0_u32, 1, 300] {
            bytes.push(b'Q');
            bytes.extend((body + 4).to_be_bytes());
            bytes.extend(vec![7; body as usize]);
        }
        for cut in 1..bytes.len() {
            let mut frames = Frames::new(());
            for part in bytes.chunks(cut) {
                frames.pass(part).unwrap();
            }
            assert_eq!((frames.missing, frames.head.len()), (0, 0));
        }
    }

    #[test]
    fn a_message_that_is_too_long_or_too_short_is_refused_at_its_head() {
        for length in [0, 3, MESSAGE_BYTES_MAX + 1, u32::MAX] {
            let mut frames = Frames::new(());
            frames.pass(&startup()).unwrap();
            let mut head = vec![b'd'];
            head.extend(length.to_be_bytes());
            assert!(frames.pass(&head).is_err(), "{length}");
        }
    }
}
