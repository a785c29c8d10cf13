// Package browser drives a Chromium that runs as one of an attachment's commands, in its cage, by the Chrome DevTools Protocol over
// two pipes: nobody else can speak to it, and it has no port. Pages are the network's, and so is what they do: each message and
// each answer has a bound, dialogs are dismissed, windows that pages open are closed, and downloads are refused unless one was asked
// for. A page that hangs holds up nothing but itself: to open another is a new tab.
package browser
