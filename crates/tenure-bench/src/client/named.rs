//! A key of a peer whose manager is cloned, and told the name with every call.
//! Not here: the peers (`rlock`, `rslock`).

pub(crate) struct Named<M> {
    pub(crate) manager: M,
    pub(crate) name: String,
}

impl<M: Clone> Named<M> {
    /// Clones of a manager share its connection.
    pub(crate) fn new(manager: &M, name: &str) -> Self {
        Named {
            manager: manager.clone(),
            name: name.to_owned(),
        }
    }
}
