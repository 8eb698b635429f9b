// The C interface of hosts that own rows of sharded tables.
#include <algorithm>
#include <functional>

#include "core/c_api.h"
#include "core/c_api_guard.h"
#include "core/c_api_socket.h"
#include "core/engine/engine_registry.h"

using tfhybrid::Engine, tfhybrid::LinkPurpose, tfhybrid::OfferedSocket, tfhybrid::Status,
    tfhybrid::WithEngine;

int tfhybrid_owners_connect(int64_t engine, int64_t host, int purpose, int socket,
                            const char* peer) {
  OfferedSocket offered(socket);
  return WithEngine(engine, [&](Engine* its) -> Status {
    TFHYBRID_RETURN_IF_ERROR(its->owners().links().CheckOther(host));
    its->owners().links().Add(host, static_cast<LinkPurpose>(purpose),
                              its->Adopt(offered.Take(), peer));
    return Status::Ok();
  });
}

int tfhybrid_owners_serve(int64_t engine, int64_t host, int purpose, int socket, const char* peer) {
  OfferedSocket offered(socket);
  return WithEngine(engine, [&](Engine* its) -> Status {
    TFHYBRID_RETURN_IF_ERROR(its->owners().links().CheckOther(host));
    const auto use = static_cast<LinkPurpose>(purpose);
    if (use == LinkPurpose::kUpdates) its->owners().links().SetName(host, peer);  // its leader's
    its->owners().service().Serve(host, use, its->Adopt(offered.Take(), peer));
    return Status::Ok();
  });
}

int tfhybrid_owners_name(int64_t engine, int64_t host, const char* name) {
  return WithEngine(engine, [&](Engine* its) -> Status {
    TFHYBRID_RETURN_IF_ERROR(its->owners().links().CheckOther(host));
    its->owners().links().SetName(host, name);
    return Status::Ok();
  });
}

int tfhybrid_owners_end_reads(int64_t engine) {
  return WithEngine(engine, [&](Engine* its) { its->owners().links().ShutReads(); });
}

int tfhybrid_owners_readers(int64_t engine, int64_t* count) {
  return WithEngine(engine,
                    [&](Engine* its) { *count = its->owners().service().CountOfReaders(); });
}

int tfhybrid_owners_scan(int64_t engine, int64_t host, const char* table, int64_t first,
                         int64_t count, int64_t* rows, int64_t* bytes, int64_t* read, int64_t* keys,
                         float* embeddings) {
  return WithEngine(engine, [&](Engine* its) -> Status {
    TFHYBRID_ASSIGN_OR_RETURN(const auto open, its->tables().Get(table));
    TFHYBRID_ASSIGN_OR_RETURN(const tfhybrid::ScannedRows scanned,
                              its->owners().Scan(host, {table, open->reader->dim(), first, count}));
    *rows = scanned.table_rows;
    *bytes = scanned.table_bytes;
    *read = static_cast<int64_t>(scanned.keys.size());
    std::copy(scanned.keys.begin(), scanned.keys.end(), keys);
    std::copy(scanned.embeddings.begin(), scanned.embeddings.end(), embeddings);
    return Status::Ok();
  });
}

int tfhybrid_table_owned(int64_t engine, const char* table, int64_t count, const int64_t* keys,
                         uint8_t* owned) {
  return WithEngine(engine, [&](Engine* its) {
    const std::function<bool(int64_t key)> owns = its->tables().OwnsOf(table);
    for (int64_t i = 0; i < count; ++i) owned[i] = owns == nullptr || owns(keys[i]) ? 1 : 0;
  });
}
