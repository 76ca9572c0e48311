//! Organisations: the boundary between customers of one cluster.
//!
//! A role or a token belongs to one organisation or to none. What the roles of one organisation own is invisible to the
//! roles and tokens of every other, whatever was granted; superusers stand above that boundary.

use crate::id::OrgId;

/// Limits of an organisation by contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Profile {
    /// No limits.
    #[default]
    Unlimited,
    /// At most 10,000 series.
    Free,
    /// Pay as you go: at most 1,000,000 series.
    Payg,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Self; 3] = [Self::Unlimited, Self::Free, Self::Payg];

    /// Name in SQL and in the HTTP API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unlimited => "unlimited",
            Self::Free => "free",
            Self::Payg => "payg",
        }
    }

    /// The profile with this name; `None` if no profile has it.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name() == name)
    }

    /// Maximum number of series; `None`: no limit.
    #[must_use]
    pub fn series_max(self) -> Option<u64> {
        match self {
            Self::Unlimited => None,
            Self::Free => Some(10_000),
            Self::Payg => Some(1_000_000),
        }
    }
}

/// An organisation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Org {
    /// Organisation id.
    pub id: OrgId,
    /// Organisation name, case-sensitive and unique.
    pub name: String,
    /// Maximum number of series, in place of the profile's; `None`: as in the profile.
    pub series_max: Option<u64>,
    /// Limits that apply where the organisation has none of its own.
    pub profile: Profile,
}

impl Org {
    /// Maximum number of series in all databases of the organisation; `None`: no limit.
    #[must_use]
    pub fn series_limit(&self) -> Option<u64> {
        self.series_max.or_else(|| self.profile.series_max())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_own_limit_replaces_that_of_the_profile() {
        let id = OrgId::new(1).unwrap();
        let org = |series_max, profile| Org { id, name: "acme".to_owned(), series_max, profile };
        assert_eq!(org(None, Profile::Free).series_limit(), Some(10_000));
        assert_eq!(org(Some(25), Profile::Free).series_limit(), Some(25));
        assert_eq!(org(None, Profile::Unlimited).series_limit(), None);
        for profile in Profile::ALL {
            assert_eq!(Profile::named(profile.name()), Some(profile));
        }
        assert_eq!(Profile::named("Free"), None);
    }
}
