"""`tf.contrib.summary`: summaries that ops write themselves."""

from tensorflow.python.ops import summary_ops_v2 as _ops

from ferroflow import contrib

for _new, _old in {
        "always_record_summaries": "always_record_summaries", "never_record_summaries": "never_record_summaries",
        "record_summaries_every_n_global_steps": "record_summaries_every_n_global_steps",
        "create_file_writer": "create_file_writer", "create_summary_file_writer": "create_file_writer",
        "SummaryWriter": "SummaryWriter", "all_summary_ops": "all_v2_summary_ops",
        "summary_writer_initializer_op": "summary_writer_initializer_op", "initialize": "initialize", "flush": "flush",
        "scalar": "scalar", "histogram": "histogram", "image": "image", "audio": "audio", "generic": "generic", "graph": "graph",
        "import_event": "import_event", "should_record_summaries": "should_record_summaries",
        "record_summaries_if": "record_if", "create_db_writer": "create_db_writer"}.items():
    if hasattr(_ops, _old):
        globals()[_new] = getattr(_ops, _old)

__getattr__ = contrib.missing_from(__name__)
