//! Judges a split a minute later, by the measured work of its parts.
//!
//! Invariants: pure functions. A split that divided nothing makes its whole descent back off, 1, 2, 4 ... 60 minutes,
//! so that even a detector that is wrong for ever costs a bounded number of splits; one useful split clears that.

use crate::action::SplitWhy;

/// Time after which a split is judged, by the load in that time.
pub(crate) const JUDGED_AFTER_MS: u64 = 60_000;
/// Share of the busier part above which a split was in vain.
pub(crate) const IN_VAIN_SHARE: f64 = 0.90;
/// Minimum work in the minute for a judgement, seconds of a core: 5 % of one lane.
pub(crate) const WORK_MIN_S: f64 = 3.0;
/// Maximum backoff, minutes.
const BACK_OFF_MAX_MIN: u64 = 60;

/// Judgement of a split.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Judgement {
    /// Not judged: too little load, or a split that was not to divide any. The share, if it was measured.
    Open(Option<f64>),
    /// The split divided the load; the share of the busier part.
    Useful(f64),
    /// The split did not divide the load; the share of the busier part.
    InVain(f64),
}

impl Judgement {
    pub(crate) fn share(self) -> Option<f64> {
        match self {
            Self::Open(share) => share,
            Self::Useful(share) | Self::InVain(share) => Some(share),
        }
    }
}

/// Judges a split by the work, in seconds of cores, of its left and its right part since.
pub(crate) fn judge(why: SplitWhy, left_s: f64, right_s: f64) -> Judgement {
    let sum = left_s + right_s;
    if sum < WORK_MIN_S {
        return Judgement::Open(None);
    }
    let share = left_s.max(right_s) / sum;
    match why {
        // These are made for their bytes; and of the two splits around a hot key one may well divide nothing.
        // What is cut ahead of a peak is judged when the peak has ended.
        SplitWhy::Size
        | SplitWhy::RightEdge
        | SplitWhy::LeftEdge
        | SplitWhy::IsolateKey
        | SplitWhy::Forecast => Judgement::Open(Some(share)),
        SplitWhy::Load if share > IN_VAIN_SHARE => Judgement::InVain(share),
        SplitWhy::Load => Judgement::Useful(share),
    }
}

/// Backoff of a descent after that many consecutive splits in vain, milliseconds: 1, 2, 4 ... 60 minutes.
pub(crate) fn back_off_ms(in_vain: u8) -> u64 {
    let minutes =
        1_u64.checked_shl(u32::from(in_vain.saturating_sub(1))).unwrap_or(BACK_OFF_MAX_MIN);
    minutes.min(BACK_OFF_MAX_MIN) * 60_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_that_divides_is_useful_and_one_that_does_not_is_in_vain() {
        assert_eq!(judge(SplitWhy::Load, 30.0, 10.0), Judgement::Useful(0.75));
        assert_eq!(judge(SplitWhy::Load, 1.0, 19.0), Judgement::InVain(0.95));
        assert_eq!(judge(SplitWhy::Load, 1.0, 1.0), Judgement::Open(None));
    }

    #[test]
    fn a_split_for_bytes_is_not_blamed_for_load() {
        assert_eq!(judge(SplitWhy::RightEdge, 0.0, 40.0), Judgement::Open(Some(1.0)));
        assert_eq!(judge(SplitWhy::Size, 0.0, 40.0), Judgement::Open(Some(1.0)));
    }

    #[test]
    fn back_off_doubles_up_to_an_hour() {
        let minutes: Vec<u64> = (1..=9).map(|level| back_off_ms(level) / 60_000).collect();
        assert_eq!(minutes, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(back_off_ms(u8::MAX), 60 * 60_000);
    }
}
