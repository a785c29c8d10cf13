// Package link is a connector's side of the talk with the environment registry: it dials out, proves its NKey, says hello,
// tells that the machine works, and hands on what is ordered. It believes nobody: an order counts when its permit is
// signed by a key that the deployment's root key signed, and when its lease is held and of the newest epoch.
package link
