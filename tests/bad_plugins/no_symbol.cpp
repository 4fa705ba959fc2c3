// A shared library that is no plugin.
extern "C" [[gnu::visibility("default")]] int some_function();
int some_function() { return 1; }
