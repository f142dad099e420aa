//! One shop: a server that sells from a stock that it shares with other shops.

mod buy;
mod serve;
mod stock;
mod till;
mod way;

pub(crate) use serve::serve;
pub(crate) use stock::ITEMS;
