"""What all tests share."""

import signal

# A shell's background job ignores an interrupt, and so would all that a test starts, to interrupt it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
