int syncd_test_no_module = 0;
