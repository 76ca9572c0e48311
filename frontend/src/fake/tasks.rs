//! The fake's tasks, without meta's bounds.

use std::sync::Arc;

use partita_proto::Error;
use partita_proto::catalog::Catalog;
use partita_proto::id::TaskId;
use partita_proto::task::{TaskChange, TaskEntry};

use super::{Fake, none};

impl Fake {
    pub(super) fn change_tasks(
        &self,
        catalog: &mut Catalog,
        change: TaskChange,
    ) -> Result<bool, Error> {
        let definition = catalog.version + 1;
        match change {
            TaskChange::Create { task, if_not_exists } => {
                if catalog.task(task.database, &task.name).is_some() {
                    return match if_not_exists {
                        true => Ok(false),
                        false => Err(Error::AlreadyExists { kind: "task", name: task.name }),
                    };
                }
                task.validate()?;
                let id = TaskId(u32::try_from(self.next_id()).unwrap_or(u32::MAX));
                put(catalog, task.entry(id, definition));
                Ok(true)
            }
            TaskChange::Alter { task, edit } => {
                let edited = existing(catalog, task)?.edited(&edit, definition);
                let changed = edited.is_some();
                edited.into_iter().for_each(|entry| put(catalog, entry));
                Ok(changed)
            }
            TaskChange::Drop { task } => {
                existing(catalog, task)?;
                Ok(Arc::make_mut(&mut catalog.tasks).remove(&task).is_some())
            }
            TaskChange::Step { task, step } => {
                let entry = existing(catalog, task)?;
                let Some(state) = entry.after(&step)? else { return Ok(false) };
                let task = Arc::clone(&entry.task);
                put(catalog, TaskEntry { task, state: Arc::new(state) });
                Ok(true)
            }
        }
    }
}

fn existing(catalog: &Catalog, id: TaskId) -> Result<Arc<TaskEntry>, Error> {
    catalog.tasks.get(&id).map(Arc::clone).ok_or_else(|| none("task", &id.to_string()))
}

fn put(catalog: &mut Catalog, entry: TaskEntry) {
    Arc::make_mut(&mut catalog.tasks).insert(entry.task.id, Arc::new(entry));
}
