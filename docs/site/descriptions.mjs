/** Reads `@description`, with which openapi-typescript begins the comments of `api.ts`, as the text of a comment. */
export function load(app) {
  app.on("bootstrapEnd", () => {
    app.options.setValue("blockTags", [...app.options.getValue("blockTags"), "@description"]);
  });
  app.converter.on("resolveBegin", (context) => {
    for (const { comment } of Object.values(context.project.reflections)) {
      const described = comment?.getTag("@description");
      if (described) {
        comment.summary = described.content;
        comment.removeTags("@description");
      }
    }
  });
}
