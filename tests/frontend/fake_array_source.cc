// The build takes this folder's files only; the fake that other folders may use too is compiled
// here.
#include "tests/support/fake_array.cc"  // NOLINT(bugprone-suspicious-include)
