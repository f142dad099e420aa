//! One shop: an HTTP server that sells from a stock that all shops share.

mod buy;
mod serve;
mod stock;
mod till;
mod way;

pub(crate) use serve::serve;
pub(crate) use stock::ITEMS;
