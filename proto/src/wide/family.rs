//! Changes of the column families of a wide table, which meta applies to the families that there are then.
//!
//! ```text
//!   Create ──▶ family ── Drop ──▶ dropped: cells are hidden, the name is taken ── cells removed, Cleared ──▶ name is free
//! ```
//!
//! The cells of a dropped family are removed by writes, which take time. Until meta knows that none is left, no other
//! family gets the name: it would have those cells, or lose its own to the removal. A removal carries the version of the
//! schema that it was decided by, and partitions refuse it under a later one.

use serde::{Deserialize, Serialize};

use super::{Family, Wide, invalid};
use crate::error::Error;
use crate::id::SchemaVersion;

/// SQLSTATE of a name that a dropped family still has.
const OBJECT_IN_USE: &str = "55006";

/// A family that was dropped, whose cells may not all be removed yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedFamily {
    /// Unique in its table, also among families that are being dropped.
    pub name: String,
    /// Version of the schema that dropped it.
    pub version: SchemaVersion,
}

/// A change of a table's families.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FamilyChange {
    /// Adds a family.
    Create(Family),
    /// Replaces the rule of a family. Its aggregate stays as it is, and may be left out.
    Update(Family),
    /// Removes a family, whose cells are hidden from then on.
    Drop(String),
    /// Frees the name of a dropped family: its cells are removed. Has no effect when it is free already.
    Cleared(DroppedFamily),
}

impl FamilyChange {
    /// Name of the family that is changed.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Create(family) | Self::Update(family) => &family.name,
            Self::Drop(name) => name,
            Self::Cleared(family) => &family.name,
        }
    }

    /// Changes the families of a table by the schema of a version.
    fn apply(&self, wide: &mut Wide, version: SchemaVersion) -> Result<(), Error> {
        let position = wide.families.iter().position(|family| family.name == self.name());
        match (self, position) {
            (Self::Cleared(family), _) => wide.dropped.retain(|dropped| dropped != family),
            (Self::Create(_), Some(_)) => {
                return Err(Error::AlreadyExists {
                    kind: "column family",
                    name: self.name().to_owned(),
                });
            }
            (Self::Create(family), None) => {
                wide.check_free(&family.name)?;
                wide.families.push(family.clone());
            }
            (Self::Update(family), Some(position)) => {
                let present = &mut wide.families[position];
                if family.aggregate.is_some() {
                    present.check_same_aggregate(family)?;
                }
                present.gc.clone_from(&family.gc);
            }
            (Self::Drop(name), Some(position)) => {
                wide.families.remove(position);
                wide.dropped.push(DroppedFamily { name: name.clone(), version });
            }
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

impl Family {
    /// Refuses another aggregate: the cells that are there were combined by the present one.
    fn check_same_aggregate(&self, new: &Self) -> Result<(), Error> {
        if self.aggregate == new.aggregate {
            return Ok(());
        }
        invalid(format!("the aggregate of column family \"{}\" cannot be changed", self.name))
    }
}

impl Wide {
    /// The table after changes of its families, in their order, by the schema of a version.
    ///
    /// # Errors
    /// [`Error::AlreadyExists`] or [`Error::NotFound`] of a "column family"; [`Error::InvalidInput`] if a family would get
    /// another aggregate; 55006 if the name of a new family is that of a dropped one.
    pub fn changed(&self, changes: &[FamilyChange], version: SchemaVersion) -> Result<Self, Error> {
        let mut changed = self.clone();
        changes.iter().try_for_each(|change| change.apply(&mut changed, version))?;
        Ok(changed)
    }

    /// The table after its families and limits were replaced, by the schema of a version. Families that are not among the
    /// new ones are dropped.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if a family would get another aggregate; 55006 if the name of a new family is that of a
    /// dropped one.
    pub fn replaced(&self, new: &Self, version: SchemaVersion) -> Result<Self, Error> {
        new.families.iter().try_for_each(|family| self.check_free(&family.name))?;
        for family in &self.families {
            new.family(&family.name).map_or(Ok(()), |new| family.check_same_aggregate(new))?;
        }
        let former = self.families.iter().filter(|family| new.family(&family.name).is_none());
        let former = former.map(|family| DroppedFamily { name: family.name.clone(), version });
        let dropped = self.dropped.iter().cloned().chain(former).collect();
        Ok(Self { dropped, ..new.clone() })
    }

    /// Refuses the name of a dropped family whose cells may still be there.
    fn check_free(&self, name: &str) -> Result<(), Error> {
        if self.dropped.iter().all(|family| family.name != name) {
            return Ok(());
        }
        Err(Error::Query {
            sqlstate: OBJECT_IN_USE.to_owned(),
            message: format!("column family \"{name}\" is being dropped"),
            hint: Some("Create it in another request when its cells are removed.".to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wide::{Aggregate, GcRule};

    const VERSION: SchemaVersion = SchemaVersion(7);

    fn family(name: &str, gc: Option<GcRule>) -> Family {
        Family { name: name.to_owned(), gc, aggregate: None }
    }

    fn dropped(name: &str) -> DroppedFamily {
        DroppedFamily { name: name.to_owned(), version: VERSION }
    }

    fn with(families: Vec<Family>) -> Wide {
        Wide { families, ..Wide::default() }
    }

    #[test]
    fn families_change_in_order() {
        let wide = with(vec![family("a", None), family("b", None)]);
        let rule = Some(GcRule::MaxVersions(1));
        let changes = [
            FamilyChange::Drop("a".to_owned()),
            FamilyChange::Create(family("c", None)),
            FamilyChange::Update(family("c", rule.clone())),
        ];
        let wide = wide.changed(&changes, VERSION).unwrap();
        assert_eq!(wide.families, [family("b", None), family("c", rule)]);
        assert_eq!(wide.dropped, [dropped("a")]);
        for (change, sqlstate) in [
            (FamilyChange::Create(family("b", None)), "42710"),
            (FamilyChange::Update(family("d", None)), "42704"),
            (FamilyChange::Drop("a".to_owned()), "42704"),
        ] {
            assert_eq!(wide.changed(&[change], VERSION).unwrap_err().sqlstate(), sqlstate);
        }
    }

    #[test]
    fn a_name_is_free_again_when_the_cells_of_the_family_are_removed() {
        let wide = with(vec![family("a", None)]);
        let (drop, create) =
            (FamilyChange::Drop("a".to_owned()), FamilyChange::Create(family("a", None)));
        // Its cells are there when it is created, whether that is in the same request or a later one.
        let refused = wide.changed(&[drop.clone(), create.clone()], VERSION).unwrap_err();
        assert_eq!(refused.sqlstate(), "55006");
        let wide = wide.changed(std::slice::from_ref(&drop), VERSION).unwrap();
        assert!(wide.collects());
        assert_eq!(
            wide.changed(std::slice::from_ref(&create), VERSION.next()).unwrap_err(),
            refused
        );
        let cleared = [FamilyChange::Cleared(dropped("a"))];
        let wide = wide.changed(&cleared, VERSION.next()).unwrap();
        assert_eq!(wide, Wide::default());
        let again = wide.changed(&[create, drop], VERSION.next()).unwrap();
        // The removal for an earlier family says nothing about this one.
        assert_eq!(again.changed(&cleared, VERSION.next()).unwrap(), again);
    }

    #[test]
    fn families_that_are_left_out_of_new_ones_are_dropped() {
        let wide = with(vec![family("a", None), family("b", None)]);
        let kept = with(vec![family("b", Some(GcRule::MaxVersions(2)))]);
        let replaced = wide.replaced(&kept, VERSION).unwrap();
        assert_eq!(
            (&replaced.families, replaced.dropped.as_slice()),
            (&kept.families, &[dropped("a")][..])
        );
        // Options are set by a catalog in which the family is there still.
        assert_eq!(replaced.replaced(&wide, VERSION.next()).unwrap_err().sqlstate(), "55006");
        assert_eq!(replaced.replaced(&kept, VERSION.next()).unwrap(), replaced);
    }

    #[test]
    fn the_aggregate_of_a_family_never_changes() {
        let summed = |gc| Family { aggregate: Some(Aggregate::Sum), ..family("a", gc) };
        let wide = with(vec![summed(None), family("b", None)]);
        let rule = Some(GcRule::MaxVersions(1));
        for update in [family("a", rule.clone()), summed(rule.clone())] {
            let changed = wide.changed(&[FamilyChange::Update(update)], VERSION).unwrap();
            assert_eq!(changed.families[0], summed(rule.clone()));
        }
        let other = Family { aggregate: Some(Aggregate::Max), ..family("a", None) };
        let late = Family { aggregate: Some(Aggregate::Sum), ..family("b", None) };
        for update in [other.clone(), late] {
            let refused = wide.changed(&[FamilyChange::Update(update)], VERSION).unwrap_err();
            assert!(refused.to_string().ends_with("cannot be changed"), "{refused}");
        }
        assert!(wide.replaced(&with(vec![other]), VERSION).is_err());
        assert!(wide.replaced(&with(vec![family("a", None)]), VERSION).is_err());
        assert!(wide.replaced(&with(vec![summed(rule), family("b", None)]), VERSION).is_ok());
    }
}
