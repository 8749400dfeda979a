// See store_fixture.h.
#include "tests/unit/store/store_fixture.h"

#include <rocksdb/db.h>

#include <functional>

namespace syncd::store {
namespace {

using Handles = std::vector<rocksdb::ColumnFamilyHandle*>;

void with_database(const std::string& path,
                   const std::function<void(rocksdb::DB& db, const Handles& handles)>& use) {
  std::vector<std::string> names;
  ASSERT_TRUE(rocksdb::DB::ListColumnFamilies({}, path, &names).ok());
  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors;
  for (const auto& name : names) descriptors.emplace_back(name, rocksdb::ColumnFamilyOptions());
  Handles handles;
  rocksdb::DB* raw = nullptr;
  ASSERT_TRUE(rocksdb::DB::Open({}, path, descriptors, &handles, &raw).ok());
  const std::unique_ptr<rocksdb::DB> db(raw);
  use(*db, handles);
  for (auto* handle : handles) db->DestroyColumnFamilyHandle(handle);
}

}  // namespace

void tamper(const std::string& path, const char* family, const std::string& key,
            const std::string* value) {
  with_database(path, [&](rocksdb::DB& db, const Handles& handles) {
    bool found = false;
    for (auto* handle : handles) {
      if (handle->GetName() != family) continue;
      found = true;
      ASSERT_TRUE(
          (value != nullptr ? db.Put({}, handle, key, *value) : db.Delete({}, handle, key)).ok());
    }
    ASSERT_TRUE(found) << family;
  });
}

void add_family(const std::string& path, const char* family) {
  with_database(path, [&](rocksdb::DB& db, const Handles&) {
    rocksdb::ColumnFamilyHandle* added = nullptr;
    ASSERT_TRUE(db.CreateColumnFamily({}, family, &added).ok());
    db.DestroyColumnFamilyHandle(added);
  });
}

}  // namespace syncd::store
