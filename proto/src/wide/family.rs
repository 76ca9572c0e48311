//! Changes of the column families of a wide table, which meta applies to the families that there are then.

use super::Family;
use crate::error::Error;

/// A change of a table's families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FamilyChange {
    /// Adds a family.
    Create(Family),
    /// Replaces the rule of a family.
    Update(Family),
    /// Removes a family and its cells.
    Drop(String),
}

impl FamilyChange {
    /// Name of the family that is changed.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Create(family) | Self::Update(family) => &family.name,
            Self::Drop(name) => name,
        }
    }

    /// Changes families.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] or [`Error::NotFound`] of a "column family".
    pub fn apply(&self, families: &mut Vec<Family>) -> Result<(), Error> {
        let position = families.iter().position(|family| family.name == self.name());
        match (self, position) {
            (Self::Create(_), Some(_)) => {
                return Err(Error::AlreadyExists {
                    kind: "column family",
                    name: self.name().to_owned(),
                });
            }
            (Self::Create(family), None) => families.push(family.clone()),
            (Self::Update(family), Some(position)) => families[position] = family.clone(),
            (Self::Drop(_), Some(position)) => drop(families.remove(position)),
            (Self::Update(_) | Self::Drop(_), None) => {
                return Err(Error::NotFound {
                    kind: "column family",
                    name: self.name().to_owned(),
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wide::GcRule;

    fn family(name: &str, gc: Option<GcRule>) -> Family {
        Family { name: name.to_owned(), gc }
    }

    #[test]
    fn families_change_in_order() {
        let mut families = vec![family("a", None), family("b", None)];
        let rule = Some(GcRule::MaxVersions(1));
        let changes = [
            FamilyChange::Drop("a".to_owned()),
            FamilyChange::Create(family("a", None)),
            FamilyChange::Update(family("a", rule.clone())),
        ];
        for change in changes {
            change.apply(&mut families).unwrap();
        }
        assert_eq!(families, [family("b", None), family("a", rule)]);
        for (change, sqlstate) in [
            (FamilyChange::Create(family("b", None)), "42710"),
            (FamilyChange::Update(family("c", None)), "42704"),
            (FamilyChange::Drop("c".to_owned()), "42704"),
        ] {
            assert_eq!(change.apply(&mut families).unwrap_err().sqlstate(), sqlstate);
        }
        assert_eq!(families.len(), 2);
    }
}
