/* Trains a line with TensorFlow's C API on a server of a cluster: c_client TARGET GRAPH_FILE STEPS */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensorflow/c/c_api.h"

static void check(TF_Status* status, const char* what) {
  if (TF_GetCode(status) != TF_OK) {
    fprintf(stderr, "%s: %d %s\n", what, TF_GetCode(status), TF_Message(status));
    exit(1);
  }
}

static void free_buffer(void* data, size_t length) {
  (void)length;
  free(data);
}

static TF_Buffer* read_file(const char* path) {
  FILE* file = fopen(path, "rb");
  if (file == NULL) {
    perror(path);
    exit(1);
  }
  fseek(file, 0, SEEK_END);
  size_t length = (size_t)ftell(file);
  fseek(file, 0, SEEK_SET);
  void* data = malloc(length);
  if (data == NULL || fread(data, 1, length, file) != length) {
    perror(path);
    exit(1);
  }
  fclose(file);
  TF_Buffer* buffer = TF_NewBuffer();
  buffer->data = data;
  buffer->length = length;
  buffer->data_deallocator = free_buffer;
  return buffer;
}

static TF_Operation* find(TF_Graph* graph, const char* name) {
  TF_Operation* operation = TF_GraphOperationByName(graph, name);
  if (operation == NULL) {
    fprintf(stderr, "the graph has no operation %s\n", name);
    exit(1);
  }
  return operation;
}

static TF_Tensor* vector(const float* values, int64_t count) {
  TF_Tensor* tensor = TF_AllocateTensor(TF_FLOAT, &count, 1, (size_t)count * sizeof(float));
  memcpy(TF_TensorData(tensor), values, (size_t)count * sizeof(float));
  return tensor;
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "c_client TARGET GRAPH_FILE STEPS\n");
    return 2;
  }
  TF_Status* status = TF_NewStatus();
  TF_Graph* graph = TF_NewGraph();
  TF_Buffer* definition = read_file(argv[2]);
  TF_ImportGraphDefOptions* import_options = TF_NewImportGraphDefOptions();
  TF_GraphImportGraphDef(graph, definition, import_options, status);
  check(status, "import");
  TF_DeleteImportGraphDefOptions(import_options);
  TF_DeleteBuffer(definition);

  TF_SessionOptions* options = TF_NewSessionOptions();
  TF_SetTarget(options, argv[1]);
  TF_Session* session = TF_NewSession(graph, options, status);
  check(status, "session");
  TF_DeleteSessionOptions(options);

  const TF_Operation* init = find(graph, "init");
  TF_SessionRun(session, NULL, NULL, NULL, 0, NULL, NULL, 0, &init, 1, NULL, status);
  check(status, "init");

  const float xs[4] = {0, 1, 2, 3};
  const float ys[4] = {1, 3, 5, 7};
  TF_Output inputs[2] = {{find(graph, "x"), 0}, {find(graph, "y"), 0}};
  TF_Output output = {find(graph, "loss"), 0};
  const TF_Operation* train = find(graph, "train");
  for (int step = 0; step < atoi(argv[3]); ++step) {
    TF_Tensor* values[2] = {vector(xs, 4), vector(ys, 4)};
    TF_Tensor* loss = NULL;
    TF_SessionRun(session, NULL, inputs, values, 2, &output, &loss, 1, &train, 1, NULL, status);
    check(status, "train");
    printf("loss %.9g\n", *(float*)TF_TensorData(loss));
    TF_DeleteTensor(loss);
    TF_DeleteTensor(values[0]);
    TF_DeleteTensor(values[1]);
  }
  TF_CloseSession(session, status);
  check(status, "close");
  TF_DeleteSession(session, status);
  TF_DeleteGraph(graph);
  TF_DeleteStatus(status);
  return 0;
}
