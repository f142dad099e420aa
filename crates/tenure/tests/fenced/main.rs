//! Writes that only the newest holder of a lock can make.

#[cfg(feature = "etcd")]
mod etcd;
#[cfg(feature = "redis")]
mod redis;
mod sql;
#[cfg(feature = "zookeeper")]
mod zookeeper;
