// Nothing but a place for the headers that the tests share (syncd_test_headers in ../CMakeLists.txt).
int main() {}
